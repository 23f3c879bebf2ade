inputs = {
  size = 3
}
