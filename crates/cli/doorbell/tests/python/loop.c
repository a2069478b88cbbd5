/* Calls a function until the process ends, without returning to Python. */
void call_for_ever(int (*f)(void)) {
    for (;;) f();
}
