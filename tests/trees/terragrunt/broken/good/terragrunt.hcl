include "root" {
  path = find_in_parent_folders("root.hcl")
}

terraform { source = "tfr:///example/x/aws?version=1.0.0" }

locals {
  other = read_terragrunt_config("../other.hcl")
  no    = local.missing
}
