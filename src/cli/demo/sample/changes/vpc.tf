# The subnet of the service comes from a module of the registry.

module "vpc" {
  source  = "modules.acme.example/acme/vpc/aws"
  version = "1.0.0"

  environment = var.environment
}

resource "terraform_data" "placement" {
  input = {
    service = "shop-${var.environment}"
    subnet  = module.vpc.subnet
  }
}
