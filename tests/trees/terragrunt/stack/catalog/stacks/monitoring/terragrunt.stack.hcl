unit "alarms" {
  source = "../units/alarms"
  path   = "alarms"
}

unit "boards" {
  source = "${get_repo_root()}/catalog/units/boards"
  path   = "boards"
}
