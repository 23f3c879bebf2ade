generate "main" {
  path      = "main.tf"
  if_exists = "overwrite"
  contents  = file("main.tftpl")
}
