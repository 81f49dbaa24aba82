# Runs a PostgreSQL server for the tests, as long as one of them uses it, and removes all of it
# afterwards. It never runs as root.
#
# $1 is its directory, $2 the directory of its programs, $3 its port on 127.0.0.1. A test holds a
# shared lock of $1.users. This holds the lock $1.lock, so there is one server.
set -u
dir=$1
programs=$2
port=$3
umask 022
mkdir -p "$dir"
exec 8>"$dir.lock"
flock -n 8 || exit 0
exec 9>"$dir.users"

as_user="setpriv --pdeathsig KILL"
[ "$(id -u)" != 0 ] || as_user="$as_user --reuid=65534 --regid=65534 --clear-groups"

# What an earlier one has left: its process has the data directory as working directory.
if [ -e "$dir/data/postmaster.pid" ]; then
    kill -9 "$(head -n 1 "$dir/data/postmaster.pid")" 2>/dev/null
    sleep 1
fi
rm -rf "$dir"
mkdir -p "$dir/data"
chmod 755 "$dir"
[ "$(id -u)" != 0 ] || chown 65534:65534 "$dir/data"
cd "$dir/data" || exit 1
server=
finish() {
    if [ -n "$server" ]; then
        kill -INT "$server" 2>/dev/null
        tries=0
        while [ "$tries" -lt 50 ] && kill -0 "$server" 2>/dev/null; do
            tries=$((tries + 1))
            sleep 0.1
        done
        kill -9 "$server" 2>/dev/null
        wait "$server" 2>/dev/null
    fi
    cd /
    rm -rf "$dir"
}
trap 'finish; exit 1' INT TERM HUP
if ! $as_user "$programs/initdb" -A trust -U stockade -E UTF8 --no-locale -N -D "$dir/data" \
    8>&- 9>&- >"$dir.log" 2>&1 </dev/null; then
    tail -n 3 "$dir.log" >"$dir.failed"
    finish
    exit 1
fi
# No test ends the power: nothing is synced to the disk.
$as_user "$programs/postgres" -D "$dir/data" -p "$port" -c listen_addresses=127.0.0.1 \
    -c unix_socket_directories= -c fsync=off -c full_page_writes=off -c max_connections=400 \
    8>&- 9>&- >>"$dir.log" 2>&1 </dev/null &
server=$!
tries=0
until "$programs/pg_isready" -q -h 127.0.0.1 -p "$port"; do
    tries=$((tries + 1))
    if [ "$tries" -gt 300 ] || ! kill -0 "$server" 2>/dev/null; then
        tail -n 3 "$dir.log" >"$dir.failed"
        finish
        exit 1
    fi
    sleep 0.1
done
echo "$port" >"$dir/ready.new"
mv "$dir/ready.new" "$dir/ready"

# Unused for half a minute: the tests have ended, or were killed.
idle=0
while kill -0 "$server" 2>/dev/null && [ "$idle" -lt 30 ]; do
    sleep 1
    if flock -n -x 9; then
        idle=$((idle + 1))
        flock -u 9
    else
        idle=0
    fi
done
rm -f "$dir/ready"
finish
