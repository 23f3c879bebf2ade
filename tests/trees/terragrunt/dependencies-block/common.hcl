dependencies {
  paths = ["../b"]
}
