//! A Python interpreter inside this process: `libpython`, opened at run time, and the script that prepares the measured call.
//!
//! The measuring thread calls into it, and reads its own clock around each call as for every other subject. The interpreter belongs to the thread
//! that first needs it, which keeps Python's lock (the GIL): no other thread runs Python, so no thread waits for it.
//!
//! `DOORBELL_PYTHON` names the interpreter whose version and standard library are used (python3). `DOORBELL_LIBPYTHON` names the library, if it is
//! not installed with that interpreter. If a standard library is next to it (`python3.12/` next to `libpython3.12.so.1.0`), that is used, and no
//! interpreter is run.

use super::functions;
use crate::{Error, Unavailable};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::thread::ThreadId;

const INTERPRETER: &str = "DOORBELL_PYTHON";
const LIBRARY: &str = "DOORBELL_LIBPYTHON";

/// Prints the home of the standard library, the version, and places where the library may be.
const ASK: &str = r#"
import os, sys, sysconfig
of = sysconfig.get_config_var
print(sys.base_prefix + ":" + sys.base_exec_prefix)
print(sys.version.split()[0])
name = "libpython%d.%d.so.1.0" % sys.version_info[:2]
folders = [of("LIBDIR"), os.path.join(sys.base_prefix, "lib"), os.path.join(of("LIBDIR") or "/", of("MULTIARCH") or "")]
for folder in folders:
    print(os.path.join(folder or "/", name))
print(name)
"#;

const SCRIPT: &str = include_str!("python.py");

/// The package, as it is in this version.
const PACKAGE: [(&str, &str); 17] = [
    ("doorbell", include_str!("../../../../../python/doorbell/__init__.py")),
    ("doorbell._default", include_str!("../../../../../python/doorbell/_default.py")),
    ("doorbell._errors", include_str!("../../../../../python/doorbell/_errors.py")),
    ("doorbell._graph", include_str!("../../../../../python/doorbell/_graph.py")),
    ("doorbell._handle", include_str!("../../../../../python/doorbell/_handle.py")),
    ("doorbell._header", include_str!("../../../../../python/doorbell/_header.py")),
    ("doorbell._library", include_str!("../../../../../python/doorbell/_library.py")),
    ("doorbell._loop", include_str!("../../../../../python/doorbell/_loop.py")),
    ("doorbell._memory", include_str!("../../../../../python/doorbell/_memory.py")),
    ("doorbell._numbers", include_str!("../../../../../python/doorbell/_numbers.py")),
    ("doorbell._pages", include_str!("../../../../../python/doorbell/_pages.py")),
    ("doorbell._queue", include_str!("../../../../../python/doorbell/_queue.py")),
    ("doorbell._record", include_str!("../../../../../python/doorbell/_record.py")),
    ("doorbell._session", include_str!("../../../../../python/doorbell/_session.py")),
    ("doorbell._signatures", include_str!("../../../../../python/doorbell/_signatures.py")),
    ("doorbell._ticket", include_str!("../../../../../python/doorbell/_ticket.py")),
    ("doorbell._transfers", include_str!("../../../../../python/doorbell/_transfers.py")),
];

type Raw = *mut c_void;

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        /// The required functions of the C API of Python. All but the first are in its stable ABI.
        #[allow(non_snake_case, reason = "named as Python names them")]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl Functions {
            fn of(library: &Library) -> Result<Functions, libloading::Error> {
                Ok(Functions {
                    // SAFETY: Python's function of this name has this signature.
                    $($name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }?,)*
                })
            }
        }
    };
}

functions! {
    Py_SetPythonHome(*const libc::wchar_t);
    Py_InitializeEx(c_int);
    Py_IsInitialized() -> c_int;
    Py_CompileString(*const c_char, *const c_char, c_int) -> Raw;
    PyEval_EvalCode(Raw, Raw, Raw) -> Raw;
    PyImport_AddModule(*const c_char) -> Raw;
    PyModule_GetDict(Raw) -> Raw;
    PyObject_CallNoArgs(Raw) -> Raw;
    PyTuple_GetItem(Raw, isize) -> Raw;
    PyLong_AsUnsignedLongLong(Raw) -> u64;
    PyErr_Fetch(*mut Raw, *mut Raw, *mut Raw);
    PyErr_NormalizeException(*mut Raw, *mut Raw, *mut Raw);
    PyObject_Str(Raw) -> Raw;
    PyUnicode_AsUTF8AndSize(Raw, *mut isize) -> *const c_char;
    Py_IncRef(Raw);
    Py_DecRef(Raw);
}

/// `Py_file_input`, `Py_eval_input`.
const STATEMENTS: c_int = 257;
const EXPRESSION: c_int = 258;

/// The interpreter of this process.
pub(super) struct Python {
    functions: Functions,
    /// Names of the script.
    names: Raw,
    thread: ThreadId,
    pub version: String,
}

// SAFETY: `Python::of_thread` gives it to one thread only.
unsafe impl Send for Python {}
// SAFETY: as above.
unsafe impl Sync for Python {}

/// Which library, and whose.
struct Found {
    program: String,
    /// The folder of the standard library.
    home: String,
    version: String,
    /// Where the library may be.
    places: Vec<String>,
}

/// A library with its standard library next to it, as `lib/` of an installation has them.
fn beside(library: &str) -> Option<Found> {
    let path = Path::new(library);
    let version = path.file_name()?.to_str()?.strip_prefix("libpython")?.split(".so").next()?;
    let folder = path.parent()?;
    let home = folder.join(format!("python{version}/os.py")).is_file().then(|| folder.parent()).flatten()?;
    let (program, home) = (library.to_owned(), home.to_str()?.to_owned());
    Some(Found { program, home, version: version.into(), places: vec![library.into()] })
}

/// What the interpreter reports, with the library that the environment names.
fn asked(named: Option<String>) -> Result<Found, String> {
    let program = std::env::var(INTERPRETER).unwrap_or_else(|_| "python3".into());
    let asked = Command::new(&program).args(["-c", ASK]).output();
    let asked = asked.map_err(|why| format!("{program}: {why}; install Python 3, or name it in {INTERPRETER}"))?;
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    let mut lines = text.lines().map(str::to_owned);
    let (Some(home), Some(version)) = (lines.next(), lines.next()) else {
        let status = asked.status;
        return Err(format!("{program} did not print where its library is ({status}); name another in {INTERPRETER}"));
    };
    let places = named.map_or_else(|| lines.collect(), |named| vec![named]);
    Ok(Found { program, home, version, places })
}

static PYTHON: OnceLock<Result<Python, String>> = OnceLock::new();

impl Python {
    /// The interpreter, which the first call starts.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with what to install or to set, and on every thread except the first that asked.
    pub(super) fn of_thread() -> Result<&'static Python, Error> {
        let python = PYTHON.get_or_init(Python::start).as_ref().map_err(|why| Unavailable::new(why.clone()))?;
        if python.thread != std::thread::current().id() {
            return Err(Unavailable::new("only one thread of a process calls Python: it cannot be a load here").into());
        }
        Ok(python)
    }

    fn start() -> Result<Python, String> {
        let named = std::env::var(LIBRARY).ok();
        let Found { program, home, version, places } = match named.as_deref().and_then(beside) {
            Some(found) => found,
            None => asked(named)?,
        };
        let mut reasons = Vec::new();
        let opened = places.iter().find_map(|place| {
            // SAFETY: Python's library has no initialiser that needs anything. Its symbols are for modules of the standard library, which are not
            // linked to it.
            unsafe { Library::open(Some(place), RTLD_NOW | RTLD_GLOBAL) }.map_err(|e| reasons.push(e.to_string())).ok()
        });
        let Some(library) = opened else {
            return Err(format!(
                "no library of {program} {version} ({}); install it (Debian, Ubuntu: libpython3 of that version), name it in {LIBRARY}, or another \
                 interpreter in {INTERPRETER}",
                reasons.last().map_or("", String::as_str)
            ));
        };
        let functions = Functions::of(&library).map_err(|e| format!("the library of {program} {version}: {e}"))?;
        // Its threads and atexit functions live as long as the process.
        std::mem::forget(library);
        // SAFETY: changes nothing.
        if unsafe { (functions.Py_IsInitialized)() } != 0 {
            return Err("this process has a Python interpreter already".into());
        }
        let wide: Vec<libc::wchar_t> = home.chars().map(|c| c as libc::wchar_t).chain([0]).collect();
        // SAFETY: the text is zero-terminated and lives as long as the process. Without Python's signal handlers.
        let names = unsafe {
            (functions.Py_SetPythonHome)(wide.leak().as_ptr());
            (functions.Py_InitializeEx)(0);
            (functions.PyModule_GetDict)((functions.PyImport_AddModule)(c"__main__".as_ptr()))
        };
        let python = Python { functions, names, thread: std::thread::current().id(), version: version.clone() };
        let table: String = functions::all().into_iter().map(|(name, at)| format!("{name:?}: {at},")).collect();
        // Rust's escapes of this text are Python's.
        let sources: String = PACKAGE.iter().map(|(name, text)| format!("{name:?}: {text:?},")).collect();
        let script = format!("ADDRESSES = {{{table}}}\nSOURCES = {{{sources}}}\n");
        python.run(&script).and_then(|()| python.run(SCRIPT)).map_err(|why| format!("{program} {version}: {why}"))?;
        Ok(python)
    }

    fn code(&self, text: &str, kind: c_int) -> Result<Raw, String> {
        let text = CString::new(text).map_err(|_| "a text with a zero".to_owned())?;
        // SAFETY: zero-terminated texts; this thread has the GIL.
        let code = unsafe { (self.functions.Py_CompileString)(text.as_ptr(), c"doorbell".as_ptr(), kind) };
        if code.is_null() {
            return Err(self.error());
        }
        // SAFETY: code that was compiled above, and a dictionary.
        let answer = unsafe { (self.functions.PyEval_EvalCode)(code, self.names, self.names) };
        // SAFETY: this code owns the reference.
        unsafe { (self.functions.Py_DecRef)(code) };
        if answer.is_null() { Err(self.error()) } else { Ok(answer) }
    }

    fn run(&self, text: &str) -> Result<(), String> {
        let none = self.code(text, STATEMENTS)?;
        // SAFETY: this code owns the reference.
        unsafe { (self.functions.Py_DecRef)(none) };
        Ok(())
    }

    /// Evaluates an expression that gives a tuple of functions and numbers.
    pub(super) fn tuple(&'static self, expression: &str) -> Result<Tuple, Error> {
        let raw = self.code(expression, EXPRESSION).map_err(|why| said(&why))?;
        Ok(Tuple { python: self, raw })
    }

    /// The last raised exception, which is cleared.
    fn error(&self) -> String {
        let mut parts = [std::ptr::null_mut(); 3];
        let [kind, value, trace] = &mut parts;
        let f = &self.functions;
        // SAFETY: this thread has the GIL; this code owns what it fetches.
        unsafe {
            (f.PyErr_Fetch)(kind, value, trace);
            (f.PyErr_NormalizeException)(kind, value, trace);
            let texts = [parts[0], parts[1]].map(|part| {
                if part.is_null() {
                    return String::new();
                }
                let text = (f.PyObject_Str)(part);
                let bytes = if text.is_null() { std::ptr::null() } else { (f.PyUnicode_AsUTF8AndSize)(text, &mut 0) };
                if bytes.is_null() { String::new() } else { CStr::from_ptr(bytes).to_string_lossy().into_owned() }
            });
            parts.into_iter().filter(|part| !part.is_null()).for_each(|part| (f.Py_DecRef)(part));
            format!("{}: {}", texts[0], texts[1])
        }
    }
}

/// A script's "unavailable" stays that; all else is an error.
fn said(why: &str) -> Error {
    if ["Unavailable", "NotLaunchable", "NotPinnable"].iter().any(|name| why.contains(name)) {
        Unavailable::new(why).into()
    } else {
        Error::Told(format!("Python: {why}"))
    }
}

/// Functions and numbers.
pub(super) struct Tuple {
    python: &'static Python,
    raw: Raw,
}

impl Tuple {
    fn item(&self, at: isize) -> Result<Raw, Error> {
        // SAFETY: this code owns the tuple; the item is a borrowed reference.
        let item = unsafe { (self.python.functions.PyTuple_GetItem)(self.raw, at) };
        if item.is_null() { Err(said(&self.python.error())) } else { Ok(item) }
    }

    pub(super) fn number(&self, at: isize) -> Result<u64, Error> {
        // SAFETY: an object, of whatever kind.
        Ok(unsafe { (self.python.functions.PyLong_AsUnsignedLongLong)(self.item(at)?) })
    }

    pub(super) fn function(&self, at: isize) -> Result<Function, Error> {
        let raw = self.item(at)?;
        // SAFETY: an object of the tuple, of which this takes a new reference.
        unsafe { (self.python.functions.Py_IncRef)(raw) };
        Ok(Function { python: self.python, raw })
    }
}

impl Drop for Tuple {
    fn drop(&mut self) {
        // SAFETY: this owns the reference; the interpreter's thread drops it.
        unsafe { (self.python.functions.Py_DecRef)(self.raw) };
    }
}

/// A function without arguments.
pub(super) struct Function {
    python: &'static Python,
    raw: Raw,
}

impl Function {
    #[inline]
    pub(super) fn call(&self) -> Result<(), Error> {
        let f = &self.python.functions;
        // SAFETY: this owns the callable; this thread has the GIL.
        let answer = unsafe { (f.PyObject_CallNoArgs)(self.raw) };
        if answer.is_null() {
            return Err(said(&self.python.error()));
        }
        // SAFETY: this code owns the reference.
        unsafe { (f.Py_DecRef)(answer) };
        Ok(())
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // SAFETY: this owns the reference; the interpreter's thread drops it.
        unsafe { (self.python.functions.Py_DecRef)(self.raw) };
    }
}

/// What a script has prepared: started and waited for by calls of its functions.
pub(super) struct Prepared {
    pub fire: Function,
    pub wait: Function,
    close: Function,
}

impl Prepared {
    /// The first three items of the tuple.
    pub(super) fn of(tuple: &Tuple) -> Result<Prepared, Error> {
        Ok(Prepared { fire: tuple.function(0)?, wait: tuple.function(1)?, close: tuple.function(2)? })
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let _ = self.close.call();
    }
}
