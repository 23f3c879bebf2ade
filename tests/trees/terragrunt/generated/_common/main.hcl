locals {
  name = run_cmd("hostname")
}

generate "main" {
  path      = "${local.name}.tf"
  if_exists = "overwrite"
  contents  = "resource \"terraform_data\" \"this\" {}"
}
