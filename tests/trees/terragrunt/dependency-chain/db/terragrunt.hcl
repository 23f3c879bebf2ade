terraform {
  source = "tfr:///example/db/aws?version=1.0.0"
}

dependency "vpc" {
  config_path = "../vpc"

  mock_outputs = {
    id = "vpc-0"
  }
}

dependency "off" {
  config_path = "../nowhere"
  enabled     = false
}

inputs = {
  vpc = dependency.vpc.outputs.id
}
