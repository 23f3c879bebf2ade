locals {
  account = read_terragrunt_config(find_in_parent_folders("account.hcl"))
}

remote_state {
  backend = "s3"
  config = {
    bucket = "state-${local.account.locals.name}"
    key    = "${path_relative_to_include()}/terraform.tfstate"
  }
}

inputs = {
  owner = "platform"
}
