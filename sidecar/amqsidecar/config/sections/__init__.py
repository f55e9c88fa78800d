"""One module for each section of the options, named like the section."""
