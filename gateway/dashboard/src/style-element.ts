// A stand-in for <style> that keeps to a policy without 'unsafe-inline', which forbids even empty
// ones: its text goes into a constructed style sheet, which the policy has no say over.
export function styleElement (document: Document): HTMLElement {
  const element = document.createElement('template')
  const sheet = new CSSStyleSheet()
  const remove = element.remove.bind(element)
  let text = ''
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet]
  Object.defineProperty(element, 'textContent', {
    get: () => text,
    set: (value: string) => { sheet.replaceSync(text = value) }
  })
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet)
    remove()
  }
  return element
}
