"""The library by which Farandole's core calls Gloo. The core finds it by itself; there is nothing to call here."""
