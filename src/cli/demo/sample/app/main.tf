# The service behind the shop.

resource "terraform_data" "service" {
  input = {
    name     = "shop-${var.environment}"
    image    = "registry.example.com/shop:${var.release}"
    replicas = var.replicas
  }
}
