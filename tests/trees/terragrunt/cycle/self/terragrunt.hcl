include "self" {
  path = "./terragrunt.hcl"
}

locals {
  a = local.b
  b = local.a
  c = read_terragrunt_config("reads.hcl")
}

terraform { source = "tfr:///example/self/aws?version=1.0.0" }

dependency "self" { config_path = "." }
