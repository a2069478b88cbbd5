//! The ends of a route, from its text: routes between the same two memories can replace each other.

use experiment::What;

/// A route's memories and its executor, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends<'t> {
    pub source: &'t str,
    pub executor: &'t str,
    pub destination: &'t str,
}

impl<'t> Ends<'t> {
    /// `None` for calls, and for texts without the form of a route.
    pub fn of(what: &'t What) -> Option<Ends<'t>> {
        let What::Route(text) = what else { return None };
        let (source, rest) = text.split_once("->")?;
        let (executor, destination) = rest.split_once("->")?;
        Some(Ends { source: source.trim(), executor: executor.trim(), destination: destination.trim() })
    }

    /// `host` and `gpu0`, without the kind of host memory and the place in it.
    pub fn direction(&self) -> (&'t str, &'t str) {
        (bare(self.source), bare(self.destination))
    }

    /// Whether CUDA makes the copy.
    pub fn is_cuda(&self) -> bool {
        matches!(bare(self.executor), "cuda" | "cudart")
    }

    /// A single method of copying: `auto` uses one of the others, a message is no copy.
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
    fn the_ends_are_the_texts_around_the_executor() {
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
