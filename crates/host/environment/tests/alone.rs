//! In a separate process: it moves all other threads.

use environment::placement::affinity;
use environment::placement::alone::Alone;
use std::sync::mpsc::channel;

#[test]
fn other_threads_leave_the_cpu_and_get_it_back() {
    let all = affinity().unwrap();
    let Some((last, others)) = all.split_last() else { return };
    if others.is_empty() {
        Alone::take(*last).unwrap_err();
        return;
    }
    let (ask, asked) = channel::<()>();
    let (answer, answers) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || asked.iter().for_each(|()| answer.send(affinity().unwrap()).unwrap()));
        let of_the_other = || {
            ask.send(()).unwrap();
            answers.recv().unwrap()
        };
        assert_eq!(of_the_other(), all);
        let (alone, stayed) = Alone::take(*last).unwrap();
        assert_eq!((of_the_other().as_slice(), stayed), (others, 0));
        assert_eq!(affinity().unwrap(), all, "its own thread is not moved");
        Alone::take(*last).unwrap_err();
        Alone::take(usize::MAX).unwrap_err();
        drop(alone);
        assert_eq!(of_the_other(), all);
        drop(ask);
    });
}
