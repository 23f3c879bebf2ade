terraform { source = "tfr:///example/${basename(get_terragrunt_dir())}/aws?version=1.0.0" }
