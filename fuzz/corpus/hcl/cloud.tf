terraform {
  required_version = "~> 1.9, != 1.9.3"
  cloud {
    workspaces {
      name = "prod"
    }
  }
}

module "x" {
  source = "../x"
  list   = [for k, v in var.a : { k = v } if !contains([1.5, -2e3], v)]
  text   = "a-${var.b ? "c" : local.d[0].*.e}%{ if true }x%{ endif }"
  here   = <<-E
    cloud ${path.module}
  E
}
