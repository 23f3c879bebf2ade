terraform {
  source = "tfr:///example/app/aws?version=1.0.0"
}

dependency "db" {
  config_path = "../db/terragrunt.hcl"
}

dependency "vpc" {
  config_path = "../vpc"
}
