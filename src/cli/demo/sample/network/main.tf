# The address range of the shop, and its subnets.

locals {
  name = "shop-${var.environment}"
}

resource "terraform_data" "vpc" {
  input = {
    name = local.name
    cidr = var.cidr
  }
}

resource "terraform_data" "subnet" {
  for_each = var.subnets

  input = {
    name = "${local.name}-${each.key}"
    cidr = each.value
  }
}
