terraform { source = "tfr:///example/after/aws?version=1.0.0" }

dependency "app" {
  config_path = "../live/.terragrunt-stack/app"
}
