locals { me = read_terragrunt_config("reads.hcl") }
