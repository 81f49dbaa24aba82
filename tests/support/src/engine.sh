# Runs a Docker Engine for the tests, as long as one of them uses it, and removes all of it afterwards.
#
# $1 is its directory. A test holds a shared lock of $1.users. This holds the lock $1.lock, so there is
# one engine, and what an earlier one has left is removed before the next starts.
set -u
dir=$1
echo_program=$2
mkdir -p "$dir"
exec 8>"$dir.lock"
flock -n 8 || exit 0
exec 9>"$dir.users"

# Ends every process whose command line names this directory, and unmounts what is below it.
clean() {
    for pid in $(grep -las -- "$dir/" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3); do
        case $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") in
        *dockerd*"$dir/"* | *containerd*"$dir/"*) kill -9 "$pid" 2>/dev/null ;;
        esac
    done
    tries=0
    while [ "$tries" -lt 50 ] && grep -q " $dir/" /proc/self/mountinfo; do
        cut -d' ' -f5 /proc/self/mountinfo | grep "^$dir/" | sort -r | while read -r place; do
            umount -l "$place" 2>/dev/null
        done
        tries=$((tries + 1))
        sleep 0.1
    done
    rm -rf "$dir"
}

clean
mkdir -p "$dir"
chmod 755 "$dir"
setpriv --pdeathsig KILL dockerd --data-root "$dir/root" --exec-root "$dir/exec" \
    -H "unix://$dir/s.sock" --pidfile "$dir/pid" --iptables=false --ip6tables=false --bridge=none \
    8>&- 9>&- >"$dir.log" 2>&1 </dev/null &
engine=$!
finish() {
    kill "$engine" 2>/dev/null
    tries=0
    while [ "$tries" -lt 100 ] && kill -0 "$engine" 2>/dev/null; do
        tries=$((tries + 1))
        sleep 0.1
    done
    kill -9 "$engine" 2>/dev/null
    clean
}
trap 'finish; exit 1' INT TERM HUP

docker() {
    command docker -H "unix://$dir/s.sock" "$@"
}
tries=0
until docker version >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 100 ] || ! kill -0 "$engine" 2>/dev/null; then
        tail -n 3 "$dir.log" >"$dir.failed"
        finish
        exit 1
    fi
    sleep 0.2
done

# The image: busybox, the libraries of one program, and a directory that every user may write to.
image=$dir/image
mkdir -p "$image/bin" "$image/etc" "$image/tmp" "$image/root" "$image/data" "$image/lib64" "$image/dev" \
    "$image/proc" "$image/sys" "$image/home/user" "$image/var/tmp" "$image/usr/bin"
chmod 1777 "$image/tmp" "$image/data" "$image/var/tmp"
cp /bin/busybox "$image/bin/busybox"
for applet in $("$image/bin/busybox" --list); do
    [ "$applet" = busybox ] || ln -s busybox "$image/bin/$applet"
done
ln -s /bin/env "$image/usr/bin/env"
if [ -e "$echo_program" ]; then
    for library in $(ldd "$echo_program" | grep -o '/[^ ]*'); do
        mkdir -p "$image$(dirname "$library")"
        cp -L "$library" "$image$library"
    done
fi
printf 'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\nother:x:1001:1002::/:/bin/sh\n' \
    >"$image/etc/passwd"
printf 'root:x:0:\nuser:x:1000:\nothers:x:1002:\n' >"$image/etc/group"
tar -C "$image" --numeric-owner --owner=0 --group=0 -c . |
    docker import --change 'VOLUME /data' - t:1 >/dev/null
printf 'FROM t:1\n' >"$dir/none"
tar -C "$image" --numeric-owner --owner=0 --group=0 -c . |
    docker import --change 'USER other' --change 'ENV FROM_IMAGE=yes' --change 'WORKDIR /var' \
        --change 'ENTRYPOINT ["/bin/false"]' - t:user >/dev/null
rm -rf "$image"
touch "$dir/ready"

# Unused for half a minute: the tests have ended, or were killed.
idle=0
while kill -0 "$engine" 2>/dev/null && [ "$idle" -lt 30 ]; do
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
