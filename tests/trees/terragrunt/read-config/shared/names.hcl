include "more" {
  path = "more.hcl"
}

locals {
  data  = jsondecode(file("${get_terragrunt_dir()}/data.json"))
  own   = basename(get_terragrunt_dir())
  first = basename(get_original_terragrunt_dir())
}

inputs = {
  region = "eu"
}
