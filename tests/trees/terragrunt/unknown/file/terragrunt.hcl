locals {
  env    = get_env("ENV", "dev")
  data   = yamldecode(file("../data/${local.env}.yaml"))
  either = local.env == "dev" ? file("../data/dev.yaml") : file("../data/prod.yaml")
  names  = [for f in fileset("../data", "*.yaml") : f]
  secret = yamldecode(sops_decrypt_file("../data/secret.yaml"))
}

terraform {
  source = "tfr:///example/file/aws?version=1.0.0"
}

dependency "x" {
  config_path = "../${local.env}"
}

exclude {
  if      = local.env == "prod"
  actions = ["plan"]
}
