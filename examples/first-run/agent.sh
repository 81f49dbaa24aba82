#!/bin/sh
# What a coding agent might do: its task, and some things that nobody asked for.
set -eu
cd "$(dirname "$0")"

echo "agent: I fix the greeting, add a test, and delete what looks unused."
sed -i 's/Helo/Hello/' greet.sh
cat >test.sh <<'TEST'
#!/bin/sh
test "$(sh greet.sh world)" = "Hello, world!"
TEST
chmod +x test.sh
rm notes.txt
sh test.sh && echo "agent: the test passes."

if cat ~/.ssh/id_* >/dev/null 2>&1; then
    echo "agent: I can read your ssh keys!"
else
    echo "agent: I see no ssh keys; the home directory holds $(ls -A ~ | wc -l) files."
fi
if getent hosts example.com >/dev/null 2>&1; then
    echo "agent: I can reach the network!"
else
    echo "agent: I reach no network; the interfaces are $(sed -n 's/^ *\([^:]*\):.*/\1/p' /proc/net/dev | xargs)."
fi

# A hook runs on the host, the next time somebody commits.
if cd ../../.git/hooks 2>/dev/null; then
    echo 'echo "the agent was here"' >pre-commit
    chmod +x pre-commit
    echo "agent: I left a git hook behind."
fi
