// Boxes that an answer names, drawn over the picture: Qwen's {"bbox_2d": [left, top, right, bottom], "label": ...} and
// Google's {"box_2d": [top, left, bottom, right], "label": ...}.
import {make} from '/dom.js';

const OBJECT = /\{[^{}]{1,1000}\}/g, MAX_BOXES = 100;
const SVG = 'http://www.w3.org/2000/svg';

const isBox = box => Array.isArray(box) && box.length === 4 && box.every(Number.isFinite);

// [{box: [left, top, right, bottom], label}] in the unit of the model.
export function findBoxes(text) {
  const found = [];
  for (const [object] of text.includes('box_2d"') ? text.matchAll(OBJECT) : []) {
    let value;
    try {
      value = JSON.parse(object);
    } catch {
      continue;
    }
    const [top, left, bottom, right] = isBox(value.box_2d) ? value.box_2d : [];
    const box = isBox(value.bbox_2d) ? value.bbox_2d : [left, top, right, bottom];
    if (isBox(box) && found.length < MAX_BOXES) found.push({box, label: typeof value.label === 'string' ? value.label : ''});
  }
  return found;
}

// The size of the picture that coordinates refer to. unit: `images.boxes` of the model, as in /v1/models.
export function sizeOf(unit, width, height) {
  if (unit?.unit !== 'pixels') return [1000, 1000];
  const {multiple, min_pixels: least, max_pixels: most} = unit, area = width * height;
  let sides = [width, height].map(side => Math.round(side / multiple) * multiple);
  const fit = (factor, round) => [width, height].map(side => Math.max(multiple, round(side * factor / multiple) * multiple));
  if (sides[0] * sides[1] > most) sides = fit(Math.sqrt(most / area), Math.floor);
  else if (sides[0] * sides[1] < least) sides = fit(Math.sqrt(least / area), Math.ceil);
  return sides;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// The picture with the boxes.
export function boxedNode(file, boxes, unit) {
  const names = boxes.map(({label}) => label).filter(Boolean).join(', ');
  const image = make('img', {src: file.image, alt: file.name});
  const figure = make('figure', {class: 'with-boxes', 'aria-label': `${file.name} with ${boxes.length === 1 ? 'a box' : `${boxes.length} boxes`}${names && `: ${names}`}`}, image);
  image.addEventListener('load', () => {
    const {naturalWidth: width, naturalHeight: height} = image, [across, down] = sizeOf(unit, width, height);
    const clamped = (value, most) => Math.min(Math.max(value, 0), most);
    const drawing = svg('svg', {viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true'});
    for (const {box: [left, top, right, bottom], label} of boxes) {
      const [x, y, end, foot] = [left / across * width, top / down * height, right / across * width, bottom / down * height]
        .map((value, i) => clamped(value, i % 2 ? height : width));
      drawing.append(svg('rect', {x, y, width: Math.max(0, end - x), height: Math.max(0, foot - y)}));
      const isHigh = y <= height / 12, isRight = x > width / 2;  // a label stays within the picture
      if (label) drawing.append(svg('text', {x: isRight ? end : x, y: isHigh ? foot : y, 'font-size': height / 14,
        dy: isHigh ? '1em' : '-0.3em', 'text-anchor': isRight ? 'end' : 'start'}, label));
    }
    figure.append(drawing);
  });
  return figure;
}
