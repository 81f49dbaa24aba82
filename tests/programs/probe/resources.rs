//! Attacks on scarce resources of the machine: memory, processor time, disk, descriptors, names,
//! output.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use crate::attempt::{error_name, last_error};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[Attack] = &[
    ("hog-memory", hog_memory),
    ("spin", spin),
    ("flood", flood),
    ("fill", fill),
    ("fill-memory-files", fill_memory_files),
    ("sparse-file", sparse_file),
    ("many-files", many_files),
    ("open-files", open_files),
    ("deep-directories", deep_directories),
    ("dump-core", dump_core),
    ("processor-time", processor_time),
];

fn number(arguments: &[String], index: usize) -> usize {
    arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// `hog-memory BYTES`: touches that much memory and keeps it.
fn hog_memory(arguments: &[String]) -> Verdict {
    let mut pages = Vec::new();
    while pages.len() << 20 < number(arguments, 0) {
        pages.push(vec![1_u8; 1 << 20]);
        std::hint::black_box(&pages);
    }
    Verdict::Escaped(format!("{} MiB are in use", pages.len()))
}

/// `spin [PROCESSES]`: uses processors forever.
fn spin(arguments: &[String]) -> Verdict {
    for _ in 1..number(arguments, 0) {
        // SAFETY: the probe has one thread; the child spins as the parent does.
        if unsafe { libc::fork() } == 0 {
            break;
        }
    }
    loop {
        std::hint::spin_loop();
    }
}

/// `processor-time MILLISECONDS`: spins for that long by the clock and prints how much processor
/// time it got, in milliseconds.
fn processor_time(arguments: &[String]) -> Verdict {
    let used = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` outlives the call.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
        time.tv_sec * 1000 + time.tv_nsec / 1_000_000
    };
    let start = std::time::Instant::now();
    while start.elapsed().as_millis() < number(arguments, 0) as u128 {
        std::hint::spin_loop();
    }
    Verdict::Blocked(used().to_string())
}

/// `flood (1|2)`: writes to standard output or error until that fails.
fn flood(arguments: &[String]) -> Verdict {
    let line = [b'x'; 64 * 1024];
    let descriptor = if number(arguments, 0) == 2 { 2 } else { 1 };
    loop {
        // SAFETY: `line` has the stated length.
        let written = unsafe { libc::write(descriptor, line.as_ptr().cast(), line.len()) };
        if written < 0 {
            return Verdict::Blocked(error_name(last_error()).into());
        }
    }
}

/// `fill DIRECTORY BYTES`: writes that much into one file.
fn fill(arguments: &[String]) -> Verdict {
    let path = Path::new(&arguments[0]).join("filled-by-the-probe");
    let mut file = match File::create(&path) {
        Ok(file) => file,
        Err(error) => return Verdict::Broken(format!("{}: {error}", path.display())),
    };
    let block = vec![7_u8; 1 << 20];
    let wanted = number(arguments, 1) >> 20;
    for written in 0..wanted {
        if let Err(error) = file.write_all(&block) {
            return Verdict::Blocked(format!("{written} MiB, then {error}"));
        }
    }
    // A watcher outside may need a moment to measure.
    std::thread::sleep(std::time::Duration::from_secs(3));
    Verdict::Escaped(format!("{wanted} MiB were written to {}", path.display()))
}

/// `fill-memory-files BYTES`: the same in an anonymous memory file and in /dev/shm, which count
/// as memory.
fn fill_memory_files(arguments: &[String]) -> Verdict {
    // SAFETY: the name is a C string; the call returns a new descriptor or -1.
    let descriptor = unsafe { libc::memfd_create(c"probe".as_ptr(), 0) };
    if descriptor < 0 {
        return Verdict::Broken(format!("memfd_create: {}", error_name(last_error())));
    }
    // SAFETY: the descriptor was just created and has no other owner.
    let mut file = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(descriptor) };
    let block = vec![7_u8; 1 << 20];
    let wanted = number(arguments, 0) >> 20;
    for written in 0..wanted {
        if let Err(error) = file.write_all(&block) {
            return Verdict::Blocked(format!("{written} MiB, then {error}"));
        }
    }
    Verdict::Escaped(format!("{wanted} MiB of memory files"))
}

/// `sparse-file PATH BYTES`: a sparse file that consists of one hole.
fn sparse_file(arguments: &[String]) -> Verdict {
    let made =
        File::create(&arguments[0]).and_then(|file| file.set_len(number(arguments, 1) as u64));
    match made {
        Ok(()) => Verdict::Blocked("made".into()),
        Err(error) => Verdict::Blocked(format!("refused: {error}")),
    }
}

/// `many-files DIRECTORY COUNT`: that many files of a few bytes, a thousand in each directory.
fn many_files(arguments: &[String]) -> Verdict {
    let count = number(arguments, 1);
    for index in 0..count {
        let directory = Path::new(&arguments[0]).join(format!("many-{}", index / 1000));
        let made = std::fs::create_dir_all(&directory)
            .and_then(|()| std::fs::write(directory.join(format!("{index}")), index.to_string()));
        if let Err(error) = made {
            return Verdict::Blocked(format!("{index} files, then {error}"));
        }
    }
    Verdict::Blocked(format!("{count} files"))
}

/// Opens descriptors until no more are available.
fn open_files(_: &[String]) -> Verdict {
    const ENOUGH: usize = 1_100_000;
    let mut count = 0;
    while count < ENOUGH {
        // SAFETY: duplicates standard error; the copies are never used.
        if unsafe { libc::dup(2) } < 0 {
            return Verdict::Blocked(format!(
                "{count} descriptors, then {}",
                error_name(last_error())
            ));
        }
        count += 1;
    }
    Verdict::Escaped(format!("{count} descriptors are open"))
}

/// `deep-directories DEPTH`: a chain of directories whose path is longer than any call accepts.
fn deep_directories(arguments: &[String]) -> Verdict {
    let name = c"directory-with-a-name-of-some-length-so-that-the-path-grows";
    let depth = number(arguments, 0);
    for made in 0..depth {
        // SAFETY: `name` is a C string.
        if unsafe { libc::mkdir(name.as_ptr(), 0o755) < 0 || libc::chdir(name.as_ptr()) < 0 } {
            return Verdict::Blocked(format!("{made} levels, then {}", error_name(last_error())));
        }
    }
    // SAFETY: `c"bottom"` is a C string; the descriptor ends with the process.
    unsafe { libc::open(c"bottom".as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o644) };
    Verdict::Blocked(format!("{depth} levels"))
}

/// Raises its limit for core files as far as allowed, then crashes with a core dump.
fn dump_core(_: &[String]) -> Verdict {
    let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` outlives the call.
    if unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const limit) } == 0 {
        return Verdict::Escaped("the limit for core files could be raised".into());
    }
    std::process::abort()
}
