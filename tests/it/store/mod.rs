mod locks;
