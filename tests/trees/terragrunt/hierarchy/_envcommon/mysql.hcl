locals {
  environment     = read_terragrunt_config(find_in_parent_folders("env.hcl"))
  env             = local.environment.locals.environment
  base_source_url = "${get_repo_root()}/modules//mysql"
}

dependency "vpc" {
  config_path = "${get_terragrunt_dir()}/../vpc"
}

inputs = {
  name   = "mysql_${local.env}"
  subnet = dependency.vpc.outputs.subnet
}
