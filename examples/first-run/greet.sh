#!/bin/sh
# Greets whoever is named.
echo "Helo, ${1:-nobody}!"
