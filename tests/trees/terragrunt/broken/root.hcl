locals { = }
