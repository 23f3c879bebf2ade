generate "provider" {
  path      = "provider.tf"
  if_exists = "overwrite"
  contents  = "provider \"x\" {}"
}
