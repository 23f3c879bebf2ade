terraform {
  source = "../modules/vpc"
}
