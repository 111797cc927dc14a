// The worker of the page: runs the viewer, which is compiled to WebAssembly, and draws.
'use strict';
const DRAW_AGAIN = 1, BLINK = 2, WORK = 4, PICTURE = 8;  // Next in page.cpp
let program = null;
let canvas = null;
let drawing = false;  // a turn is on its way
let dead = false;
const kept = [];  // paths of files that are being opened
const turns = [];  // the last frames: [ms, ms of it for the calls that draw]
const early = [];  // messages that came before the program was ready

function send(kind, value) {
  postMessage({kind, value});
}

// A program that trapped is not called again: what is left in its memory may be wrong.
function die(error) {
  if (dead) return;
  dead = true;
  const memory = /memory|RangeError|allocation/i.test(String(error));
  send('fatal', {why: memory ? 'memory' : 'failure', detail: String(error), heap: heap()});
}

function heap() {
  return program && program.HEAPU8 ? program.HEAPU8.length : 0;
}

function call(name, types, values, returns = null) {
  if (dead) return 0;
  try {
    return program.ccall(name, returns, types, values);
  } catch (error) {
    die(error);
    return 0;
  }
}

const host = {
  state(text) {
    const state = JSON.parse(text);
    state.heap = heap();
    send('state', state);
    if (state.ready) forget_files();
  },
  progress(text) {
    const space = text.indexOf(' ');
    send('progress', {share: +text.slice(0, space), stage: text.slice(space + 1)});
  },
  fatal: (text) => die(text),
  copy: (text) => send('copy', text),
  ask: (text) => send('ask', text),
  written(path) {
    const FS = program.FS;
    const folder = FS.isDir(FS.stat(path).mode);
    const names = folder ? FS.readdir(path).filter((n) => n[0] !== '.').map((n) => path + '/' + n) : [path];
    for (const name of names) {
      send('save', {name: name.slice(name.lastIndexOf('/') + 1), parts: [FS.readFile(name)]});
      FS.unlink(name);
    }
    if (folder) FS.rmdir(path);
  },
};

function soon() {
  if (drawing || dead || !program) return;
  drawing = true;
  (self.requestAnimationFrame || ((f) => setTimeout(f, 16)))(turn);
}

function turn() {
  const began = performance.now();
  const next = call('page_turn', [], [], 'number');
  if (turns.push([performance.now() - began, call('page_drawing_ms', [], [], 'number')]) > 1000) turns.shift();
  drawing = false;
  if (dead) return;
  if (next & PICTURE) canvas.convertToBlob().then((blob) => send('save', {name: 'tidemark-view.png', parts: [blob]}));
  if (next & WORK) {
    drawing = true;
    setTimeout(work, 0);  // after the frame is on the screen
  } else if (next & DRAW_AGAIN) {
    soon();
  } else if (next & BLINK) {
    setTimeout(soon, 250);
  }
}

function work() {
  send('busy', true);
  call('page_work', [], []);
  send('busy', false);
  drawing = false;
  soon();
}

// A file stays readable while it is open, so its name can go once it was read.
function forget_files() {
  const FS = program.FS;
  const imported = FS.readdir('/tmp').filter((name) => name.startsWith('tidemark-')).map((name) => '/tmp/' + name);
  for (const path of [...kept.splice(0), ...imported]) {
    try { FS.unlink(path); } catch (error) { /* gone already */ }
  }
}

function free_name(name) {
  const plain = name.replace(/[\x00-\x1f/\\]/g, '_') || 'trace';
  for (let i = 1; ; ++i) {
    const path = (i === 1 ? '/' : '/' + i + '/') + plain;
    if (!program.FS.analyzePath(path).exists) return path;
  }
}

// files: [{name, data}], data a File or bytes. together: the name of a folder of ranks, or nothing.
async function open({files, together, second}) {
  send('busy', true);
  const FS = program.FS;
  const folder = together ? free_name(together) : '';
  if (folder) FS.mkdirTree(folder);
  const paths = [];
  try {
    for (const {name, data} of files) {
      const bytes = data instanceof Uint8Array ? data : new Uint8Array(await data.arrayBuffer());
      const path = folder ? folder + '/' + name.replace(/[\x00-\x1f/\\]/g, '_') : free_name(name);
      FS.mkdirTree(path.slice(0, path.lastIndexOf('/')) || '/');
      FS.writeFile(path, bytes, {canOwn: true});
      kept.push(path);
      paths.push(path);
    }
  } catch (error) {
    die(error);
    return;
  }
  send('busy', false);
  call('page_open', ['string', 'number'], [folder || paths.join('\n'), second ? 1 : 0]);
}

const on = {
  resize({width, height, scale}) {
    canvas.width = width;
    canvas.height = height;
    call('page_resize', ['number', 'number', 'number'], [width, height, scale]);
  },
  mouse: ({x, y}) => call('page_mouse', ['number', 'number'], [x, y]),
  button: ({button, down}) => call('page_button', ['number', 'number'], [button, down ? 1 : 0]),
  wheel: ({x, y}) => call('page_wheel', ['number', 'number'], [x, y]),
  modifiers: ({ctrl, shift, alt}) => call('page_modifiers', ['number', 'number', 'number'], [+ctrl, +shift, +alt]),
  key: ({code, typed, down}) => call('page_key', ['string', 'string', 'number'], [code, typed, down ? 1 : 0]),
  text: (text) => call('page_text', ['string'], [text]),
  paste: (text) => call('page_paste', ['string'], [text]),
  focus: (focused) => call('page_focus', ['number'], [focused ? 1 : 0]),
  link: (pairs) => pairs.forEach((pair) => call('page_start', ['string', 'string'], pair)),
  turns: () => send('turns', turns.splice(0)),
  files: open,
};

async function handle(kind, value) {
  if (dead) return;
  await on[kind](value);
  call('page_was_input', [], []);
  soon();
}

// Before ImGui's renderer draws, it asks for the state of WebGL, to restore it afterwards. Each question would wait
// until the frame before is drawn. Nobody else changes the state, so the first answers stay true.
function remember_state() {
  const asked = WebGL2RenderingContext.prototype.getParameter;
  const known = new Map();
  WebGL2RenderingContext.prototype.getParameter = function (name) {
    if (!known.has(name)) known.set(name, asked.call(this, name));
    return known.get(name);
  };
}

async function start({module, surface, width, height, scale, dark}) {
  canvas = surface;
  canvas.width = width;
  canvas.height = height;
  if (self.WebGL2RenderingContext) remember_state();
  program = await tidemark({
    canvas,
    host: (kind, text) => host[kind](text),
    preRun: [(m) => { m.ENV.TIDEMARK_INDEX = '0'; }],
    print: (text) => console.log(text),
    printErr: (text) => console.warn(text),
    instantiateWasm(imports, done) {
      WebAssembly.instantiate(module, imports).then((instance) => done(instance, module), die);
      return {};
    },
  });
  const made = call('page_create', ['number', 'number', 'number', 'number'],
                    [width, height, scale, dark ? 1 : 0], 'number');
  if (!made && !dead) {
    dead = true;
    send('fatal', {why: 'webgl', detail: '', heap: 0});
    return;
  }
  send('started', true);
  for (const {kind, value} of early.splice(0)) await handle(kind, value);
  soon();
}

onmessage = ({data: {kind, value}}) => {
  if (kind === 'start') start(value).catch(die);
  else if (!program) early.push({kind, value});
  else handle(kind, value);
};
