// The page around the viewer: forwards input to the worker that runs it, opens and saves files, and
// shows how far a load has come. It computes nothing, so it never stands still.
'use strict';
const $ = (id) => document.getElementById(id);
const state = {};  // as the worker told it last; tests read it
let worker = null;
let program = null;  // {code: URL of the worker's script, module: compiled}
let busy_since = 0;
let size = '';
let first_link = '';  // of a trace inside the page

function send(kind, value, transfer = []) {
  if (worker) worker.postMessage({kind, value}, transfer);
}

// --- the program inside the page
async function unpacked(id) {
  const bytes = await from_base64($(id).textContent);
  $(id).remove();
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip')));
}

async function from_base64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return new Uint8Array(await (await fetch('data:application/octet-stream;base64,' + text)).arrayBuffer());
}

async function load_program() {
  const [code, wasm] = await Promise.all([unpacked('program-js'), unpacked('program-wasm')]);
  const blob = new Blob([await code.text()], {type: 'text/javascript'});
  program = {code: URL.createObjectURL(blob), module: await WebAssembly.compile(await wasm.arrayBuffer())};
}

function measure() {
  const scale = window.devicePixelRatio || 1;
  return {width: Math.max(1, Math.round(innerWidth * scale)),
          height: Math.max(1, Math.round(innerHeight * scale)), scale};
}

// A new worker with an empty viewer; one that was stopped or failed is replaced.
function start_worker() {
  if (worker) worker.terminate();
  busy_since = 0;
  $('busy').hidden = true;
  const fresh = $('canvas').cloneNode();
  $('canvas').replaceWith(fresh);
  fresh.width = fresh.height = 1;
  const surface = fresh.transferControlToOffscreen();
  worker = new Worker(program.code);
  worker.onerror = (event) => fatal({why: 'failure', detail: event.message});
  worker.onmessage = ({data}) => receive[data.kind](data.value);
  const link = new URLSearchParams(location.hash.slice(1) || first_link);
  const theme = link.get('theme') || stored('theme');
  size = JSON.stringify(measure());
  send('start', {module: program.module, surface, dark: theme !== 'light', ...measure()}, [surface]);
  send('link', [...link]);
  first_link = '';
}

// --- what the worker says
const receive = {
  started() { document.body.dataset.started = 'yes'; },
  state(next) {
    Object.assign(state, next);
    document.title = next.name ? next.name + ' - tidemark' : 'tidemark';
    document.body.style.background = next.dark ? '#18181c' : '#ffffff';
    $('canvas').style.cursor = ['default', 'text', 'move', 'ns-resize', 'ew-resize', 'nesw-resize',
                                'nwse-resize', 'pointer', 'not-allowed'][next.cursor] || 'default';
    if (next.ready && next.name) {
      store('theme', next.dark ? 'dark' : 'light');
      remember_link(next.link);
    }
  },
  busy(on) {
    busy_since = on ? performance.now() : 0;
    if (!on) $('busy').hidden = true;
    state.busy = on;
  },
  progress({share, stage}) {
    $('stage').textContent = stage;
    $('bar').value = share;
  },
  turns(ms) { state.turns = ms; },
  fatal,
  copy(text) {
    state.copied = text;
    const by_hand = () => {
      const area = document.createElement('textarea');
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    };
    if (navigator.clipboard) navigator.clipboard.writeText(text).catch(by_hand);
    else by_hand();
  },
  ask(which) {
    second = which === 'second';
    $('pick').click();
  },
  save({name, parts}) {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob(parts));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    state.saved = (state.saved || []).concat(name);
  },
};

function fatal({why, detail}) {
  const name = opening ? opening + ': ' : '';
  const native = 'Open it with the native viewer: tidemark view ' + (opening || 'FILE');
  $('why').textContent =
    why === 'memory' ? name + 'needs more memory than the browser gives to a page. ' + native
    : why === 'webgl' ? 'This browser has no WebGL 2, which the page draws with. Allow hardware or software ' +
                        'rendering, or use the native viewer: tidemark view'
    : name + 'the viewer failed on this file (' + detail + '). ' + native;
  state.fatal = $('why').textContent;
  $('busy').hidden = true;
  $('fatal').hidden = false;
  if (worker) worker.terminate();
  worker = null;
}

setInterval(() => {
  if (busy_since && performance.now() - busy_since > 150 && $('busy').hidden) {
    $('what').textContent = opening;
    $('busy').hidden = false;
  }
}, 50);

$('cancel').onclick = () => {
  state.cancelled = true;
  Object.assign(state, {name: '', ready: false});
  start_worker();
};
$('another').onclick = () => {
  $('fatal').hidden = true;
  delete state.fatal;
  opening = '';
  start_worker();
  $('pick').click();
};

// --- the address: #time=20ms&view=0s-1.5s restores the view
let link_timer = 0;
function remember_link(link) {
  const before = new URLSearchParams(location.hash.slice(1));
  const fixed = ['theme', 'panel', 'alone'].filter((k) => before.has(k)).map((k) => k + '=' + before.get(k));
  clearTimeout(link_timer);
  link_timer = setTimeout(() => {
    try { history.replaceState(null, '', '#' + [link, ...fixed].filter(Boolean).join('&')); } catch (error) { /* not from file:// */ }
  }, 300);
}

function stored(key) {
  try { return localStorage.getItem('tidemark-' + key); } catch (error) { return null; }
}
function store(key, value) {
  try { localStorage.setItem('tidemark-' + key, value); } catch (error) { /* private window */ }
}

// --- files
let second = false;
let opening = '';

// Of two files the second is compared with the first, as in the window; ranks and more files are
// shown together, like a folder.
function open_files(files, folder, compare) {
  if (!files.length) return;
  const ranks = files.length === 2 && files.every((f) => /^rank[-_.]?\d/i.test(f.name));
  const together = folder || (files.length > 2 || ranks ? 'ranks' : '');
  opening = folder || (files.length > 1 ? files.length + ' files' : files[0].name);
  $('stage').textContent = 'opening';
  $('bar').removeAttribute('value');
  if (!worker) {
    $('fatal').hidden = true;
    delete state.fatal;
    start_worker();
  }
  state.ready = false;
  send('files', {files: files.map((f) => ({name: f.name, data: f.data || f})), together, second: compare});
}

$('pick').onchange = (event) => {
  open_files([...event.target.files], '', second);
  event.target.value = '';
  second = false;
};

function read_entries(directory) {
  const reader = directory.createReader();
  const all = [];
  return new Promise((done, fail) => {
    const more = () => reader.readEntries((entries) => {
      if (!entries.length) return done(all);
      all.push(...entries);
      more();
    }, fail);
    more();
  });
}
const file_of = (entry) => new Promise((done, fail) => entry.file(done, fail));

addEventListener('dragover', (event) => event.preventDefault());
addEventListener('drop', async (event) => {
  event.preventDefault();
  const shift = event.shiftKey;
  const files = [...event.dataTransfer.files];
  const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry && item.webkitGetAsEntry());
  const directory = entries.find((entry) => entry && entry.isDirectory);
  if (!directory) return open_files(files, '', shift);
  const inside = (await read_entries(directory)).filter((e) => e.isFile && /\.(tmk|pickle|pkl)(\.gz)?$/.test(e.name));
  open_files(await Promise.all(inside.map(file_of)), directory.name, shift);
});

// --- input
function modifiers(event) {
  send('modifiers', {ctrl: event.ctrlKey || event.metaKey, shift: event.shiftKey, alt: event.altKey});
}
function point(event) {
  const scale = window.devicePixelRatio || 1;
  send('mouse', {x: event.clientX * scale, y: event.clientY * scale});
}
const stage = $('stage-area');
stage.addEventListener('pointermove', point);
stage.addEventListener('pointerdown', (event) => {
  stage.setPointerCapture(event.pointerId);
  modifiers(event);
  point(event);
  send('button', {button: [0, 2, 1][event.button], down: true});
  event.preventDefault();
});
stage.addEventListener('pointerup', (event) => {
  point(event);
  send('button', {button: [0, 2, 1][event.button], down: false});
});
stage.addEventListener('contextmenu', (event) => event.preventDefault());
stage.addEventListener('wheel', (event) => {
  event.preventDefault();
  modifiers(event);
  const step = event.deltaMode === 0 ? 100 : 3;  // pixels or lines of a notch
  send('wheel', {x: -event.deltaX / step, y: -event.deltaY / step});
}, {passive: false});

// What the viewer has a key for. The browser keeps the rest: reload, tabs, its own tools.
function is_ours(event) {
  const ctrl = event.ctrlKey || event.metaKey;
  if (ctrl) return /^[oeacx]$/i.test(event.key) || event.key.startsWith('Arrow');
  return event.key.length === 1 || /^(F1|F12|Tab|Escape|Enter|Backspace|Delete|Home|End|Page.*|Arrow.*)$/.test(event.key);
}
addEventListener('keydown', (event) => {
  modifiers(event);
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'v') return;  // 'paste' follows
  if (is_ours(event)) event.preventDefault();
  else if (!/^(Shift|Control|Alt|Meta)/.test(event.key)) return;
  if (!event.repeat) send('key', {code: event.code, typed: event.key, down: true});
  if (event.key.length === 1 && !event.ctrlKey && !event.metaKey) send('text', event.key);
});
addEventListener('keyup', (event) => {
  modifiers(event);
  send('key', {code: event.code, typed: event.key, down: false});
});
addEventListener('paste', (event) => {
  send('paste', event.clipboardData.getData('text/plain'));
  for (const down of [true, false]) send('key', {code: 'KeyV', typed: 'v', down});
});
addEventListener('blur', () => send('focus', false));
addEventListener('focus', () => send('focus', true));
setInterval(() => {  // also when the window moves to a screen of another resolution
  const now = JSON.stringify(measure());
  if (now === size || !worker) return;
  size = now;
  send('resize', measure());
}, 100);

// --- start
(async () => {
  try {
    await load_program();
  } catch (error) {
    return fatal({why: 'failure', detail: 'this browser cannot run the page: ' + error});
  }
  const inside = [...document.querySelectorAll('script.trace')];
  if (inside.length && !location.hash) first_link = inside[0].dataset.link;
  start_worker();
  if (inside.length) open_files(await traces_in(inside), inside[0].dataset.folder, false);
})();

// tidemark export --format html puts files into the page, a large one in parts.
async function traces_in(elements) {
  const files = [];
  for (const element of elements) {
    const {file, name, bytes} = element.dataset;
    if (!files[file]) files[file] = {name, data: new Uint8Array(+bytes), filled: 0};
    const part = await from_base64(element.textContent);
    element.remove();  // lets the text go
    files[file].data.set(part, files[file].filled);
    files[file].filled += part.length;
  }
  return files;
}
