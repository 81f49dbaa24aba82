//! The encoding of requests and reports. Every byte of a message has one meaning; a message with
//! any other byte is invalid.

use std::time::Duration;

use super::{
    Cause, CommandLimits, Execute, GROUPS, KEY_BYTES, Progress, Record, Report, Request, Target,
};
use crate::refused_calls::{RefusedCalls, WORDS};
use crate::spec::WindowSize;
use crate::walls::Wall;

/// The longest step in a report, in bytes.
const STEP_BYTES: usize = 512;
/// The maximal length of a command without its arguments, environment, key and directory.
const OVERHEAD_BYTES: usize = 64;
/// The maximal number of arguments, and of variables, of a command.
const MAX_STRINGS: usize = 1 << 17;

/// Writes a message.
#[derive(Debug, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn tagged(tag: u8) -> Self {
        Self(vec![tag])
    }

    fn with_capacity(length: usize, tag: u8) -> Self {
        let mut bytes = Vec::with_capacity(length);
        bytes.push(tag);
        Self(bytes)
    }

    fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    fn word(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn signed(self, value: i32) -> Self {
        self.word(value.cast_unsigned())
    }

    fn long(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, value: &[u8]) -> Self {
        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
        self = self.word(length);
        self.0.extend_from_slice(value);
        self
    }

    fn groups(mut self, groups: &[u32]) -> Self {
        self = self.word(u32::try_from(groups.len()).unwrap_or(u32::MAX));
        groups.iter().fold(self, |writer, group| writer.word(*group))
    }

    fn list(mut self, values: &[Vec<u8>]) -> Self {
        self = self.word(u32::try_from(values.len()).unwrap_or(u32::MAX));
        values.iter().fold(self, |writer, value| writer.bytes(value))
    }

    fn flag(self, value: bool) -> Self {
        self.byte(u8::from(value))
    }

    fn option<T>(self, value: Option<T>, write: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            None => self.byte(0),
            Some(value) => write(self.byte(1), value),
        }
    }

    /// Whole milliseconds, rounded up so that nothing ends early.
    fn duration(self, value: Duration) -> Self {
        let millis = value.as_nanos().div_ceil(1_000_000);
        self.long(u64::try_from(millis).unwrap_or(u64::MAX))
    }
}

/// Reads a message; every call returns `None` once the input was invalid.
#[derive(Debug)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn signed(&mut self) -> Option<i32> {
        self.word().map(u32::cast_signed)
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.word()?).ok()?;
        self.take(length).map(<[u8]>::to_vec)
    }

    /// A text for the kernel, without NUL bytes.
    fn text(&mut self) -> Option<Vec<u8>> {
        self.bytes().filter(|bytes| !bytes.contains(&0))
    }

    fn list(&mut self) -> Option<Vec<Vec<u8>>> {
        let length = usize::try_from(self.word()?).ok().filter(|length| *length <= MAX_STRINGS)?;
        (0..length).map(|_| self.text()).collect()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Some(None) }
    }

    fn duration(&mut self) -> Option<Duration> {
        self.long().map(Duration::from_millis)
    }

    /// The value, if all input was consumed.
    fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

impl Request {
    /// The encoded request; `None` when a part of it is too long for any message.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let writer = match self {
            Self::Execute(execute) => {
                let Execute { arguments, environment, key, .. } = &**execute;
                if key.len() > KEY_BYTES
                    || arguments.len().max(environment.len()) > MAX_STRINGS
                    || execute.groups.len() > GROUPS
                {
                    return None;
                }
                let words = || arguments.iter().chain(environment);
                // Allocated in one piece: the copies that a growing buffer leaves behind cannot be
                // erased.
                let length = words().map(|word| word.len() + 4).sum::<usize>() + OVERHEAD_BYTES;
                let length = length + key.len() + execute.working_directory.len();
                let length = length + 4 * execute.groups.len();
                // An init of an earlier version knows neither groups nor who may become root.
                let tag = match (execute.may_become_root, execute.groups.is_empty()) {
                    (false, true) => b'X',
                    (false, false) => b'Y',
                    (true, _) => b'Z',
                };
                let writer = Writer::with_capacity(length, tag)
                    .long(execute.number)
                    .bytes(key)
                    .list(arguments)
                    .list(environment)
                    .bytes(&execute.working_directory)
                    .word(execute.user)
                    .word(execute.group)
                    .option(execute.terminal, |writer, WindowSize { rows, columns }| {
                        writer.word(u32::from(rows) << 16 | u32::from(columns))
                    })
                    .option(execute.timeout, Writer::duration);
                if tag == b'X' { writer } else { writer.groups(&execute.groups) }
            }
            Self::Signal { number, signal } => Writer::tagged(b'S').long(*number).signed(*signal),
            Self::Kill { number } => Writer::tagged(b'K').long(*number),
            Self::CloseInput { number } => Writer::tagged(b'I').long(*number),
            Self::Forget { number } => Writer::tagged(b'F').long(*number),
            Self::Connect { number, target, user, group } => {
                let writer = Writer::tagged(b'C').long(*number).word(*user).word(*group);
                match target {
                    Target::Tcp(port) => writer.byte(0).word((*port).into()),
                    Target::Unix(path) => writer.byte(1).bytes(path),
                }
            }
            Self::Lease(duration) => Writer::tagged(b'T').duration(*duration),
            Self::Stop { by_signal } => Writer::tagged(b'P').flag(*by_signal),
            Self::FinishRenames => Writer::tagged(b'W'),
            Self::Continue => Writer::tagged(b'Q'),
            Self::Root => Writer::tagged(b'R'),
            Self::Listeners => Writer::tagged(b'N'),
            Self::List => Writer::tagged(b'L'),
            Self::Limits(CommandLimits { processes, processors }) => {
                Writer::tagged(b'U').long(*processes).option(*processors, Writer::word)
            }
            Self::End => Writer::tagged(b'E'),
        };
        Some(writer.0)
    }

    /// Decodes a request.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let request = match reader.byte()? {
            tag @ (b'X' | b'Y' | b'Z') => Self::Execute(Box::new(Execute {
                number: reader.long()?,
                key: reader.bytes().filter(|key| key.len() <= KEY_BYTES)?,
                arguments: reader.list().filter(|arguments| !arguments.is_empty())?,
                environment: reader.list()?,
                working_directory: reader.text()?,
                user: reader.word()?,
                group: reader.word()?,
                terminal: reader.option(|reader| {
                    let size = reader.word()?;
                    Some(WindowSize {
                        rows: u16::try_from(size >> 16).ok()?,
                        columns: u16::try_from(size & 0xffff).ok()?,
                    })
                })?,
                timeout: reader.option(Reader::duration)?,
                groups: match tag {
                    b'X' => Vec::new(),
                    b'Y' => reader.groups().filter(|groups| !groups.is_empty())?,
                    _ => reader.groups()?,
                },
                may_become_root: tag == b'Z',
            })),
            b'S' => Self::Signal { number: reader.long()?, signal: reader.signed()? },
            b'K' => Self::Kill { number: reader.long()? },
            b'I' => Self::CloseInput { number: reader.long()? },
            b'F' => Self::Forget { number: reader.long()? },
            b'C' => {
                let (number, user, group) = (reader.long()?, reader.word()?, reader.word()?);
                let target = match reader.byte()? {
                    0 => Target::Tcp(u16::try_from(reader.word()?).ok()?),
                    1 => Target::Unix(reader.text()?),
                    _ => return None,
                };
                Self::Connect { number, target, user, group }
            }
            b'T' => Self::Lease(reader.duration()?),
            b'P' => Self::Stop { by_signal: reader.flag()? },
            b'W' => Self::FinishRenames,
            b'Q' => Self::Continue,
            b'R' => Self::Root,
            b'N' => Self::Listeners,
            b'L' => Self::List,
            b'U' => Self::Limits(CommandLimits {
                processes: reader.long()?,
                processors: reader.option(Reader::word)?,
            }),
            b'E' => Self::End,
            _ => return None,
        };
        reader.end(request)
    }
}

impl Report {
    /// The encoded report, always short enough for a message.
    pub fn encode(&self) -> Vec<u8> {
        let writer = match self {
            Self::Started { number } => Writer::tagged(b's').long(*number),
            Self::NotStarted { number, wall, step, errno } => {
                let step = &step.as_bytes()[..step.len().min(STEP_BYTES)];
                Writer::tagged(b'n')
                    .long(*number)
                    .option(*wall, |writer, wall| writer.byte(wall as u8))
                    .bytes(step)
                    .signed(*errno)
            }
            Self::Finished { number, status } => return finished(*number, *status).to_vec(),
            Self::Exited { number, status, cause } => {
                Writer::tagged(b'x').long(*number).signed(*status).cause(*cause)
            }
            Self::Gone { number } => Writer::tagged(b'g').long(*number),
            Self::Connected { number } => Writer::tagged(b'c').long(*number),
            Self::Refused { number, errno } => Writer::tagged(b'r').long(*number).signed(*errno),
            Self::Record(Record { number, key, terminal, input, progress }) => {
                let writer =
                    Writer::tagged(b'd').long(*number).bytes(key).flag(*terminal).flag(*input);
                match progress {
                    Progress::Running => writer.byte(0),
                    Progress::NotStarted { errno } => writer.byte(1).signed(*errno),
                    Progress::Exited { status, cause } => {
                        writer.byte(2).signed(*status).cause(*cause)
                    }
                }
            }
            Self::Root => Writer::tagged(b'o'),
            Self::Listeners => Writer::tagged(b'w'),
            Self::Listed => Writer::tagged(b'l'),
            Self::RefusedCalls { number, calls } => {
                let writer = Writer::tagged(b'k').long(*number);
                calls.to_words().into_iter().fold(writer, Writer::long)
            }
            Self::RenamesFinished => Writer::tagged(b'm'),
            Self::Thaw => Writer::tagged(b't'),
        };
        writer.0
    }

    /// Decodes a report.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let report = match reader.byte()? {
            b's' => Self::Started { number: reader.long()? },
            b'n' => Self::NotStarted {
                number: reader.long()?,
                wall: reader.option(|reader| Wall::from_index(reader.byte()?))?,
                step: {
                    let step = reader.bytes().filter(|step| step.len() <= STEP_BYTES)?;
                    String::from_utf8_lossy(&step).into_owned()
                },
                errno: reader.signed()?,
            },
            b'x' => Self::Exited {
                number: reader.long()?,
                status: reader.signed()?,
                cause: reader.cause()?,
            },
            b'f' => Self::Finished { number: reader.long()?, status: reader.signed()? },
            b'g' => Self::Gone { number: reader.long()? },
            b'c' => Self::Connected { number: reader.long()? },
            b'r' => Self::Refused { number: reader.long()?, errno: reader.signed()? },
            b'd' => Self::Record(Record {
                number: reader.long()?,
                key: reader.bytes().filter(|key| key.len() <= KEY_BYTES)?,
                terminal: reader.flag()?,
                input: reader.flag()?,
                progress: match reader.byte()? {
                    0 => Progress::Running,
                    1 => Progress::NotStarted { errno: reader.signed()? },
                    2 => Progress::Exited { status: reader.signed()?, cause: reader.cause()? },
                    _ => return None,
                },
            }),
            b'o' => Self::Root,
            b'w' => Self::Listeners,
            b'l' => Self::Listed,
            b'k' => Self::RefusedCalls {
                number: reader.long()?,
                calls: {
                    let mut words = [0; WORDS];
                    for word in &mut words {
                        *word = reader.long()?;
                    }
                    RefusedCalls::from_words(words)
                },
            },
            b'm' => Self::RenamesFinished,
            b't' => Self::Thaw,
            _ => return None,
        };
        reader.end(report)
    }
}

/// The encoding of [`Report::Finished`], made without allocation.
pub(crate) fn finished(number: u64, status: i32) -> [u8; 13] {
    let mut bytes = [0; 13];
    bytes[0] = b'f';
    bytes[1..9].copy_from_slice(&number.to_le_bytes());
    bytes[9..].copy_from_slice(&status.to_le_bytes());
    bytes
}

impl Writer {
    fn cause(self, cause: Option<Cause>) -> Self {
        self.byte(match cause {
            None => 0,
            Some(Cause::TimedOut) => 1,
            Some(Cause::Killed) => 2,
            Some(Cause::SubreaperLost) => 3,
        })
    }
}

impl Reader<'_> {
    fn groups(&mut self) -> Option<Vec<u32>> {
        let count = usize::try_from(self.word()?).ok().filter(|count| *count <= GROUPS)?;
        (0..count).map(|_| self.word()).collect()
    }

    fn cause(&mut self) -> Option<Option<Cause>> {
        match self.byte()? {
            0 => Some(None),
            1 => Some(Some(Cause::TimedOut)),
            2 => Some(Some(Cause::Killed)),
            3 => Some(Some(Cause::SubreaperLost)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request> {
        let execute = Execute {
            number: 7,
            key: b"build-1".to_vec(),
            arguments: vec![b"sh".to_vec(), b"-c".to_vec(), Vec::new()],
            environment: vec![b"A=\xff".to_vec()],
            working_directory: b"/work".to_vec(),
            user: 1000,
            group: 1001,
            groups: Vec::new(),
            may_become_root: false,
            terminal: Some(WindowSize { rows: 24, columns: 65_535 }),
            timeout: Some(Duration::from_millis(1500)),
        };
        let plain = Execute { terminal: None, timeout: None, ..execute.clone() };
        let grouped = Execute { groups: vec![4, 65_534], ..execute.clone() };
        let powerful = Execute { may_become_root: true, ..execute.clone() };
        let both = Execute { may_become_root: true, ..grouped.clone() };
        let connect = |target| Request::Connect { number: 3, target, user: 1000, group: 1000 };
        vec![
            Request::Execute(Box::new(execute)),
            Request::Execute(Box::new(plain)),
            Request::Execute(Box::new(grouped)),
            Request::Execute(Box::new(powerful)),
            Request::Execute(Box::new(both)),
            Request::Signal { number: 7, signal: 15 },
            Request::Kill { number: 7 },
            Request::CloseInput { number: 7 },
            Request::Forget { number: u64::MAX },
            connect(Target::Tcp(8080)),
            connect(Target::Unix(b"/tmp/socket".to_vec())),
            Request::Lease(Duration::from_secs(60)),
            Request::Stop { by_signal: true },
            Request::Stop { by_signal: false },
            Request::FinishRenames,
            Request::Continue,
            Request::Root,
            Request::Listeners,
            Request::List,
            Request::Limits(CommandLimits { processes: 1 << 40, processors: None }),
            Request::Limits(CommandLimits { processes: 7, processors: Some(2) }),
            Request::End,
        ]
    }

    fn reports() -> Vec<Report> {
        let record = |progress| {
            Report::Record(Record {
                number: 7,
                key: b"build-1".to_vec(),
                terminal: true,
                input: false,
                progress,
            })
        };
        let not_started = |wall| Report::NotStarted {
            number: 7,
            wall,
            step: "run the program".to_owned(),
            errno: 2,
        };
        let exited = |cause| Report::Exited { number: 7, status: 256, cause };
        vec![
            Report::Started { number: 7 },
            not_started(None),
            not_started(Some(Wall::Landlock)),
            exited(None),
            exited(Some(Cause::TimedOut)),
            exited(Some(Cause::Killed)),
            exited(Some(Cause::SubreaperLost)),
            Report::Finished { number: 7, status: 256 },
            Report::Gone { number: 7 },
            Report::Connected { number: 3 },
            Report::Refused { number: 3, errno: 111 },
            Report::RefusedCalls {
                number: 7,
                calls: RefusedCalls::from_words([1, 2, 3, 4, 5, 6, 7, 8]),
            },
            Report::RenamesFinished,
            record(Progress::Running),
            record(Progress::NotStarted { errno: 13 }),
            record(Progress::Exited { status: 9, cause: Some(Cause::Killed) }),
            Report::Root,
            Report::Listeners,
            Report::Listed,
            Report::Thaw,
        ]
    }

    #[test]
    fn each_message_survives_the_way() {
        for request in requests() {
            assert_eq!(
                Request::receive(&request.encode().unwrap(), &mut Vec::new()),
                Some(request)
            );
        }
        for report in reports() {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
    }

    #[test]
    fn a_message_with_a_byte_more_or_less_is_refused() {
        for request in requests() {
            let bytes = request.encode().unwrap();
            assert_eq!(Request::decode(&bytes[..bytes.len() - 1]), None, "{request:?}");
            assert_eq!(Request::decode(&[&bytes[..], &[0]].concat()), None, "{request:?}");
        }
        for report in reports() {
            let bytes = report.encode();
            assert_eq!(Report::decode(&bytes[..bytes.len() - 1]), None, "{report:?}");
            assert_eq!(Report::decode(&[&bytes[..], &[0]].concat()), None, "{report:?}");
        }
    }

    /// Every accepted message has one meaning: encoding it again gives the same bytes.
    #[test]
    fn a_changed_message_is_understood_in_one_way_or_not_at_all() {
        for report in reports() {
            let bytes = report.encode();
            for at in 0..bytes.len() {
                for value in 0..=u8::MAX {
                    let mut changed = bytes.clone();
                    changed[at] = value;
                    if let Some(read) = Report::decode(&changed)
                        && !matches!(read, Report::NotStarted { .. })
                    {
                        assert_eq!(read.encode(), changed);
                    }
                }
            }
        }
    }

    #[test]
    fn what_the_kernel_would_cut_short_is_refused() {
        let execute = Execute {
            number: 1,
            key: Vec::new(),
            arguments: vec![b"a\0b".to_vec()],
            environment: Vec::new(),
            working_directory: b"/".to_vec(),
            user: 0,
            group: 0,
            groups: Vec::new(),
            may_become_root: false,
            terminal: None,
            timeout: None,
        };
        let bytes = Request::Execute(Box::new(execute.clone())).encode().unwrap();
        assert_eq!(Request::decode(&bytes), None);
        let nothing = Execute { arguments: Vec::new(), ..execute };
        let bytes = Request::Execute(Box::new(nothing)).encode().unwrap();
        assert_eq!(Request::decode(&bytes), None);
    }
}
