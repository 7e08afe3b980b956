// the file // expect: stray is not a layer
