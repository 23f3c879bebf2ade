locals {
  units = "${get_repo_root()}/catalog/units"
  env   = "prod"
}

unit "vpc" {
  source = "${local.units}/vpc"
  path   = "vpc"
  values = {
    size = "small"
  }
}

unit "app" {
  source = "${local.units}/app"
  path   = "app"
  values = {
    vpc  = "../vpc"
    name = "app-${local.env}"
  }
}

stack "monitoring" {
  source = "../catalog/stacks/monitoring"
  path   = "monitoring"
}

unit "remote" {
  source = "git::https://git.example.com/catalog.git//units/x?ref=v1"
  path   = "x"
}
