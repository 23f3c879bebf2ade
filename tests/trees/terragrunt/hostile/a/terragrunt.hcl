include "etc" {
  path = "/etc/passwd"
}

include "up" {
  path = "../../../../etc/passwd"
}

locals {
  home   = file("~/.ssh/id_rsa")
  up     = file("../../../secret")
  root   = file("${get_repo_root()}/../secret")
  config = read_terragrunt_config("/etc/terragrunt.hcl")
  found  = find_in_parent_folders("../../../etc/passwd", "none")
  where  = "x/${get_repo_root()}/y"
}

terraform {
  source = "/etc//x"

  extra_arguments "x" {
    required_var_files = ["/etc/passwd", "../../../../x.tfvars"]
  }
}

dependency "up" {
  config_path = "../../../.."
}

dependencies {
  paths = ["/", local.where, "../b"]
}
