module "subnet" {
  source = "../subnet"
}
