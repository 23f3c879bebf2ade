terraform { source = "tfr:///example/x/aws?version=1.0.0" }

exclude {
  if      = true
  actions = ["destroy"]
}
