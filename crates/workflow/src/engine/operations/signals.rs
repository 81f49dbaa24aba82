//! Signals: the wait that receives a signal.

use stockade_api::Wait;

use crate::engine::open_waits::OpenWait;

/// The wait that receives a signal: found by its address, or else by its name, with the run's own waits
/// first. If there is none, the run keeps the signal for one of its own tasks that waits for it later.
/// A child in a sandbox that waits for it later does not receive it by the name alone.
pub(super) fn find_receiver<'a>(
    open: &'a [OpenWait],
    run: &str,
    name: &str,
    correlation: Option<&str>,
) -> Option<&'a OpenWait> {
    let find = |is_its: &dyn Fn(&OpenWait, &str) -> bool| {
        open.iter().find(|open| match &open.wait {
            Wait::Signal { name: plain, correlation: wanted, .. } => {
                (wanted.is_none() || wanted.as_deref() == correlation) && is_its(open, plain)
            }
            _ => false,
        })
    };
    let by_address = |open: &OpenWait, _: &str| open.wait.answer_name().as_deref() == Some(name);
    let own = |open: &OpenWait, _: &str| open.run == run && open.name.as_deref() == Some(name);
    let by_name = |_: &OpenWait, plain: &str| plain == name;
    find(&by_address).or_else(|| find(&own)).or_else(|| find(&by_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(run: &str, node: &str, name: &str, taken_as: &str) -> OpenWait {
        let (node, name) = (node.to_owned(), name.to_owned());
        let (iteration, label, correlation, due_ms) = (0, None, None, None);
        let wait = Wait::Signal { node, iteration, label, name, correlation, due_ms };
        let name = Some(taken_as.to_owned());
        OpenWait { run: run.to_owned(), name, question: None, schema: None, wait, is_now: true }
    }

    #[test]
    fn a_signal_goes_to_the_wait_that_it_is_for() {
        let receiver_of = |open: &[OpenWait], name: &str| {
            let open = find_receiver(open, "r", name, None)?;
            Some((open.run.clone(), open.name.clone().unwrap()))
        };
        let to = |run: &str, name: &str| Some((run.to_owned(), name.to_owned()));
        let child = open("r", "box/word", "go", "box/go");
        let below = open("r:child:sub:0", "sub/word", "go", "go");
        let own = open("r", "word", "go", "go");
        let all = [child.clone(), below.clone(), own];
        assert_eq!(receiver_of(&all, "go"), to("r", "go"));
        assert_eq!(receiver_of(&all, "box/go"), to("r", "box/go"));
        assert_eq!(receiver_of(&all, "sub/go"), to("r:child:sub:0", "go"));
        // The name is enough for an existing wait, but not for a later wait in a sandbox.
        assert_eq!(receiver_of(&[child], "go"), to("r", "box/go"));
        assert_eq!(receiver_of(&[below], "go"), to("r:child:sub:0", "go"));
        assert_eq!(receiver_of(&[], "go"), None);
    }
}
