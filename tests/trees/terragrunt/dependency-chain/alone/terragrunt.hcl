terraform {
  source = "tfr:///example/alone/aws?version=1.0.0"
}
