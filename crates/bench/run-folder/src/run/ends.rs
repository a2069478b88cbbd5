//! What the text of a route says of its ends: routes between the same two memories can take each other's place.

use experiment::What;

/// A route's memories and what moves the bytes between them, as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends<'t> {
    pub source: &'t str,
    pub executor: &'t str,
    pub destination: &'t str,
}

impl<'t> Ends<'t> {
    /// `None` of calls, and of what has not the form of a route.
    pub fn of(what: &'t What) -> Option<Ends<'t>> {
        let What::Route(text) = what else { return None };
        let (source, rest) = text.split_once("->")?;
        let (executor, destination) = rest.split_once("->")?;
        Some(Ends { source: source.trim(), executor: executor.trim(), destination: destination.trim() })
    }

    /// `host` and `gpu0`, without what kind of host memory and where in it.
    pub fn direction(&self) -> (&'t str, &'t str) {
        (bare(self.source), bare(self.destination))
    }

    /// One of CUDA's own forms.
    pub fn is_cuda(&self) -> bool {
        matches!(bare(self.executor), "cuda" | "cudart")
    }

    /// A way to copy of its own: `auto` takes one of the others, a message is no copy.
    pub fn is_single(&self) -> bool {
        !matches!(bare(self.executor), "auto" | "message")
    }
}

/// Without options.
fn bare(text: &str) -> &str {
    text.split_once('[').map_or(text, |(name, _)| name).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_what_stands_round_the_executor() {
        let route = What::Route("host[node=1,offset=64] -> cuda[batch,polled] -> gpu0".into());
        let ends = Ends::of(&route).unwrap();
        assert_eq!((ends.source, ends.destination), ("host[node=1,offset=64]", "gpu0"));
        assert_eq!((ends.executor, ends.direction()), ("cuda[batch,polled]", ("host", "gpu0")));
        assert!(ends.is_cuda() && ends.is_single());
        let of = |text: &str| What::Route(text.into());
        assert!(!Ends::of(&of("host->auto[for=max]->gpu0")).unwrap().is_single());
        assert!(!Ends::of(&of("host->ce3->gpu0")).unwrap().is_cuda());
        assert_eq!(Ends::of(&of("no route")), None);
        assert_eq!(Ends::of(&What::Call("a->b->c".into())), None);
    }
}
