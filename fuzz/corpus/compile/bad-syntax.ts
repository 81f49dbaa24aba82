let x = (1;
