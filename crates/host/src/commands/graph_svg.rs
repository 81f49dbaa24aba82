//! The graph of a workflow as a picture: tasks are boxes, a sequence is a column, and what runs in parallel
//! is a row.

use stockade_workflow::graph::{Graph, Group, Loop, Node, Order};

/// The size of the box of a task, the space between boxes, and the width of a character, in pixels.
const HEIGHT: usize = 40;
const LEAST_WIDTH: usize = 120;
const GAP: usize = 24;
const CHARACTER: usize = 8;
/// The height of the title of a group.
const TITLE: usize = 22;

/// A drawn part with its size.
struct Picture {
    width: usize,
    height: usize,
    /// Elements with coordinates relative to the part.
    svg: String,
}

/// The picture of a graph.
pub(super) fn svg(graph: &Graph) -> String {
    let body = column(&graph.body);
    let (width, height) = (body.width + 2 * GAP, body.height + 2 * GAP + TITLE);
    let name = escaped(&graph.name);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>{name}</title>\n\
         <text x=\"{GAP}\" y=\"{TITLE}\" font-weight=\"bold\">{name}</text>\n\
         <g transform=\"translate({GAP} {})\">\n{}</g>\n</svg>\n",
        GAP + TITLE,
        body.svg
    )
}

fn picture(node: &Node) -> Picture {
    match node {
        Node::Task(task) => {
            let kind = if task.is_skipped { "skipped" } else { task.work.kind() };
            boxed(&task.id, kind)
        }
        Node::Group(Group { order: Order::Sequence, children }) => column(children),
        Node::Group(Group { order: order @ Order::Parallel { .. }, children }) => {
            let row = row(children);
            match order.limits() {
                Some(title) => framed(&title, row),
                None => row,
            }
        }
        Node::Group(Group { order: Order::Boundary { .. }, children }) => {
            framed("with a reaction to failure", column(children))
        }
        Node::Loop(repeated) => framed(&loop_title(repeated), column(&repeated.children)),
    }
}

fn boxed(id: &str, kind: &str) -> Picture {
    let width = (id.chars().count() * CHARACTER + 2 * CHARACTER).max(LEAST_WIDTH);
    let middle = width / 2;
    let svg = format!(
        "<rect width=\"{width}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"#f4f6f8\" stroke=\"#55606a\"/>\n\
         <text x=\"{middle}\" y=\"17\" text-anchor=\"middle\">{}</text>\n\
         <text x=\"{middle}\" y=\"33\" text-anchor=\"middle\" font-size=\"11\" fill=\"#55606a\">{}</text>\n",
        escaped(id),
        escaped(kind)
    );
    Picture { width, height: HEIGHT, svg }
}

/// What is said of a loop.
pub(super) fn loop_title(repeated: &Loop) -> String {
    match repeated.limit() {
        Some(most) => format!("{}, at most {most} times", repeated.id),
        None => format!("{}, without a limit", repeated.id),
    }
}

fn framed(title: &str, inner: Picture) -> Picture {
    let width = (inner.width + GAP).max(title.chars().count() * CHARACTER + GAP);
    let height = inner.height + TITLE + GAP / 2;
    let svg = format!(
        "<rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"none\" stroke=\"#9aa5b1\" stroke-dasharray=\"5 4\"/>\n\
         <text x=\"8\" y=\"16\" font-size=\"11\" fill=\"#55606a\">{}</text>\n{}",
        escaped(title),
        placed(&inner, (width - inner.width) / 2, TITLE)
    );
    Picture { width, height, svg }
}

/// Parts below each other, with arrows.
fn column(nodes: &[Node]) -> Picture {
    let parts: Vec<Picture> = nodes.iter().map(picture).filter(|part| part.height > 0).collect();
    let width = parts.iter().map(|part| part.width).max().unwrap_or_default();
    let (mut svg, mut y) = (String::new(), 0);
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            let (x, from, to) = (width / 2, y, y + GAP);
            svg.push_str(&format!(
                "<path d=\"M{x} {from}V{to}M{} {}L{x} {to}L{} {}\" fill=\"none\" stroke=\"#55606a\"/>\n",
                x.saturating_sub(4),
                to - 6,
                x + 4,
                to - 6
            ));
            y = to;
        }
        svg.push_str(&placed(part, (width - part.width) / 2, y));
        y += part.height;
    }
    Picture { width, height: y, svg }
}

/// Parts beside each other.
fn row(nodes: &[Node]) -> Picture {
    let parts: Vec<Picture> = nodes.iter().map(picture).filter(|part| part.height > 0).collect();
    let height = parts.iter().map(|part| part.height).max().unwrap_or_default();
    let (mut svg, mut x) = (String::new(), 0);
    for (number, part) in parts.iter().enumerate() {
        x += if number > 0 { GAP } else { 0 };
        svg.push_str(&placed(part, x, (height - part.height) / 2));
        x += part.width;
    }
    Picture { width: x, height, svg }
}

fn placed(part: &Picture, x: usize, y: usize) -> String {
    format!("<g transform=\"translate({x} {y})\">\n{}</g>\n", part.svg)
}

/// A text as XML. Characters that XML does not have are left out.
fn escaped(text: &str) -> String {
    let mut written = String::new();
    for character in text.chars() {
        match character {
            '&' => written.push_str("&amp;"),
            '<' => written.push_str("&lt;"),
            '>' => written.push_str("&gt;"),
            '"' => written.push_str("&quot;"),
            other if other.is_control() => {}
            other => written.push(other),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stockade_workflow::graph::Task;

    use super::*;

    #[test]
    fn a_picture_has_all_tasks_and_no_markup_of_the_file() {
        let task = |id: &str| Node::from(Task::value(id, json!(1)));
        let body = [
            task("<a>"),
            Node::parallel(Some(2), [task("b"), task("c")]),
            Node::repeated("again", false, 3, [task("d")]),
        ];
        let text = svg(&Graph::new("w & x", body));
        for part in ["&lt;a&gt;", ">b<", ">c<", ">d<", "2 in parallel", "again, at most 3 times"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("<title>w &amp; x</title>") && !text.contains("<a>"), "{text}");
        assert!(svg(&Graph::new("empty", [])).starts_with("<svg "));
    }
}
