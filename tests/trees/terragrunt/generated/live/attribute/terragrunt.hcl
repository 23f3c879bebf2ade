generate = {
  main = {
    path      = "main.tf"
    if_exists = "overwrite"
    contents  = "resource \"terraform_data\" \"this\" {}"
  }
}
