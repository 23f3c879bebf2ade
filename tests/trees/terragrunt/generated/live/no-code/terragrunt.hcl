generate "notes" {
  path      = "notes.txt"
  if_exists = "overwrite"
  contents  = "nothing that runs"
}

generate "off" {
  path      = "off.tf"
  disable   = true
  if_exists = "overwrite"
  contents  = ""
}
