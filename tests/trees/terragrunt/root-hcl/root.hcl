locals {
  settings = yamldecode(file("${get_parent_terragrunt_dir()}/settings.yaml"))
}

terraform {
  extra_arguments "common" {
    commands           = get_terraform_commands_that_need_vars()
    required_var_files = ["${get_parent_terragrunt_dir()}/common.tfvars"]
    optional_var_files = [find_in_parent_folders("team.tfvars", "none.tfvars"), "${get_terragrunt_dir()}/own.tfvars"]
    arguments          = ["-lock-timeout=${get_env("LOCK", "20m")}", "-var-file=${get_repo_root()}/more.tfvars"]
  }
}

generate "provider" {
  path      = "provider.tf"
  if_exists = "overwrite_terragrunt"
  contents  = templatefile("provider.tftpl", { region = local.settings.region })
}
