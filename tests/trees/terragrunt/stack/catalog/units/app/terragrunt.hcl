dependency "vpc" {
  config_path = values.vpc
}

dependency "shared" {
  config_path = "${get_repo_root()}/shared"
}

terraform {
  source = "tfr:///example/app/aws?version=1.0.0"
}

inputs = {
  policy = file("${get_terragrunt_dir()}/policy.json")
}
